"""Opens, lists, copies, publishes and digests files by URI, on local disks, HDFS and object stores."""
