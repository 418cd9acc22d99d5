"""Read prepared datasets: open splits, read sample tables, access records. Imports neither torch nor DALI."""
