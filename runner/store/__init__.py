"""Create-once files on disk or in a bucket, leases, the artifact cache, garbage collection."""
