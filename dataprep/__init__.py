"""The offline wing: images on disk in, verified shards out. It never imports DALI, torch or `loaders`."""
