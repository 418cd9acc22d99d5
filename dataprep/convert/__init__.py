"""The steps of a conversion: prepare, plan, work, finish, on one machine or many."""
