"""Writes the objects of a store for tests of URLs."""

from pyarrow import fs

BUCKET = "bucket"


class BucketFiles:
    """Writes the objects of a bucket. files: pyarrow's file system of the store."""

    files: fs.FileSystem

    def put(self, name, data):
        """Write an object, or replace it."""
        path = f"{BUCKET}/{name}"
        # By default pyarrow compresses an object whose name ends with .zst and the like.
        with self.files.open_output_stream(path, compression=None) as file:
            file.write(data)

    def put_directory(self, directory, name):
        """Write the files of a directory as objects. name: the prefix of their names."""
        for path in sorted(directory.iterdir()):
            self.put(f"{name}/{path.name}", path.read_bytes())
