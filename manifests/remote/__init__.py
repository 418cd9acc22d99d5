"""Object stores: S3, Google Cloud Storage, Azure Blob Storage and HTTPS behind one small interface.

::

    url          URLs of folders and objects. Strings only
    store        a folder of objects that are listed, read in ranges, published atomically and deleted (begin
                 here), and uploads in parts that a killed process left
    connect      endpoints, credentials and errors

The package ``obstore`` does the work; it is imported when the first store is opened, and the extra
``[cloud]`` installs it. Credentials and endpoints come from the environment and the usual files
only, never from a URL, so no message, manifest or log can contain one.
"""
