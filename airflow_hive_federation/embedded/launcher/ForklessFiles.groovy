// Replaces Hadoop's local file system by one without forks. Hadoop without its native library forks `chmod`
// for every file and directory that it creates, and `ls` for the permissions of every file that it lists.
// Java can do both itself since version 7, so that adding a thousand partitions needs no forks. Also, the
// `ls` runs after the listing: Hive's writes list their table's directory, and fail if a cleaner or a
// compactor removes a directory of it in between.
import groovy.transform.CompileStatic
import java.nio.file.FileSystemException
import java.nio.file.Files
import java.nio.file.NoSuchFileException
import java.nio.file.attribute.PosixFileAttributes
import java.nio.file.attribute.PosixFilePermissions
import java.util.regex.Pattern
import org.apache.hadoop.fs.FileChecksum
import org.apache.hadoop.fs.FileStatus
import org.apache.hadoop.fs.LocalFileSystem
import org.apache.hadoop.fs.MD5MD5CRC32GzipFileChecksum
import org.apache.hadoop.fs.Path
import org.apache.hadoop.fs.RawLocalFileSystem
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.io.MD5Hash

@CompileStatic
class ForklessRawFiles extends RawLocalFileSystem {
    private static final Pattern ACID_DIRECTORY = ~/(base|delta|delete_delta)_\d+.*/

    @Override
    void setPermission(Path path, FsPermission permission) throws IOException {
        String bits = new StringBuilder()
            .append(permission.userAction.SYMBOL)
            .append(permission.groupAction.SYMBOL)
            .append(permission.otherAction.SYMBOL)
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits))
    }

    // Hadoop also calls this to list a directory, and leaves out files that have vanished.
    @Override
    FileStatus getFileStatus(Path path) throws IOException {
        java.nio.file.Path file = pathToFile(path).toPath()
        PosixFileAttributes found
        try {
            found = (PosixFileAttributes) Files.readAttributes(file, PosixFileAttributes)
        } catch (NoSuchFileException problem) {
            // No second check here, because another thread may have created the file by now.
            throw missing(path, problem)
        } catch (FileSystemException problem) {
            if (Files.exists(file)) throw problem
            throw missing(path, problem)
        }
        String bits = (found.directory ? 'd' : '-') + PosixFilePermissions.toString(found.permissions())
        new FileStatus(
            found.size(), found.directory, 1, getDefaultBlockSize(path),
            found.lastModifiedTime().toMillis(), found.lastAccessTime().toMillis(),
            FsPermission.valueOf(bits), found.owner().name, found.group().name,
            path.makeQualified(uri, workingDirectory))
    }

    // A cleaner may remove a directory of an ACID table between the listing of its parent and its own: then
    // the directory counts as empty, as in an object store. Hive's FetchOperator would take a
    // FileNotFoundException there for an empty table, and its SELECT would return no rows.
    @Override
    FileStatus[] listStatus(Path path) throws IOException {
        try {
            super.listStatus(path)
        } catch (IOException problem) {
            boolean vanished = problem instanceof FileNotFoundException || !Files.exists(pathToFile(path).toPath())
            if (!vanished || !ACID_DIRECTORY.matcher(path.name).matches()) throw problem
            new FileStatus[0]
        }
    }

    private static FileNotFoundException missing(Path path, FileSystemException problem) {
        (FileNotFoundException) new FileNotFoundException("File ${path} does not exist").initCause(problem)
    }
}

@CompileStatic
class ForklessFiles extends LocalFileSystem {
    ForklessFiles() { super(new ForklessRawFiles()) }

    @Override
    FileChecksum getFileChecksum(Path path) throws IOException {
        getFileChecksum(path, Long.MAX_VALUE)
    }

    // Hive's change manager uses checksums in the names of the files that it keeps; Hadoop has them for HDFS
    // only.
    @Override
    FileChecksum getFileChecksum(Path path, long length) throws IOException {
        if (!conf.getBoolean('fs.file.checksums', false)) return null
        Files.newInputStream(pathToFile(path).toPath()).withCloseable {
            (FileChecksum) new MD5MD5CRC32GzipFileChecksum(0, 0, MD5Hash.digest(it))
        }
    }
}
