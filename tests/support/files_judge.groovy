// Prints how often the embedded metastore's file system fails to say whether a directory exists that another
// thread makes and removes meanwhile. Argument: the directory.
import java.nio.file.Files
import java.nio.file.Paths
import java.util.concurrent.atomic.AtomicBoolean
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

def place = Paths.get(args[0])
def files = Class.forName('ForklessFiles').getDeclaredConstructor().newInstance()
files.initialize(new URI('file:///'), new Configuration(false))
def ended = new AtomicBoolean(false)
def maker = Thread.start {
    while (!ended.get()) {
        Files.createDirectory(place)
        Files.delete(place)
    }
}
def failed = 0
200_000.times {
    try {
        files.exists(new Path(place.toString()))
    } catch (IOException problem) {
        failed++
    }
}
ended.set(true)
maker.join()
println failed
