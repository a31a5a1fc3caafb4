// Copies the mechanism GSSAPI of SASL out of this Java, for a Java of another build that lacks its module.
// Argument: a directory, which becomes an entry of the class path.
import java.nio.file.FileSystems
import java.nio.file.Files
import java.nio.file.Paths
import java.util.stream.Collectors

def module = FileSystems.getFileSystem(URI.create('jrt:/')).getPath('/modules/jdk.security.jgss')
def folder = Paths.get(args[0])
def classes = Files.walk(module.resolve('com/sun/security/sasl/gsskerb')).collect(Collectors.toList())
for (file in classes.findAll { Files.isRegularFile(it) }) {
    def copy = folder.resolve(module.relativize(file).toString())
    Files.createDirectories(copy.parent)
    Files.copy(file, copy)
}
def services = Files.createDirectories(folder.resolve('META-INF/services'))
services.resolve('java.security.Provider').toFile().text = 'com.sun.security.sasl.gsskerb.JdkSASL\n'
