// Hadoop without its native library forks `chmod` for every file and directory it makes. Java can do that
// itself since version 7, and a metastore that adds a thousand partitions is then not made of forks.
import groovy.transform.CompileStatic
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import org.apache.hadoop.fs.LocalFileSystem
import org.apache.hadoop.fs.Path
import org.apache.hadoop.fs.RawLocalFileSystem
import org.apache.hadoop.fs.permission.FsPermission

@CompileStatic
class ForklessRawFiles extends RawLocalFileSystem {
    @Override
    void setPermission(Path path, FsPermission permission) throws IOException {
        String bits = new StringBuilder()
            .append(permission.userAction.SYMBOL)
            .append(permission.groupAction.SYMBOL)
            .append(permission.otherAction.SYMBOL)
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits))
    }
}

@CompileStatic
class ForklessFiles extends LocalFileSystem {
    ForklessFiles() { super(new ForklessRawFiles()) }
}
