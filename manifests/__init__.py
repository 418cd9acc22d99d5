"""What a dataset contains, before and after preparation: the contract both wings keep.

This package never writes a shard, never decodes an image and imports neither wing.
"""
