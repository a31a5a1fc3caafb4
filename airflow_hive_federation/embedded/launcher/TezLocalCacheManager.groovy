// Replaces the class by which Tez's local mode hands files to the tasks of a query. Tez's own copies each file
// for each container, with seven forks, and links the copy into the working directory. Hive names its own jar as
// such a file: 87 MB per container, although the classes are in this JVM already.
package org.apache.tez.dag.app.launcher

import groovy.transform.CompileStatic
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.Paths
import java.util.regex.Pattern
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FileContext
import org.apache.hadoop.fs.FileUtil
import org.apache.hadoop.security.UserGroupInformation
import org.apache.hadoop.yarn.api.records.LocalResource
import org.apache.hadoop.yarn.api.records.LocalResourceType
import org.apache.hadoop.yarn.util.FSDownload

@CompileStatic
class TezLocalCacheManager {
    private static final Pattern LOADED = ~/hive-exec-.*\.jar/
    /** The links that containers of this JVM use. A JVM that was killed leaves others, which are replaced. */
    private static final Map<Path, Use> USES = [:]

    private final Map<String, LocalResource> resources
    private final Configuration conf
    private final List<Path> links = []

    TezLocalCacheManager(Map<String, LocalResource> resources, Configuration conf) {
        this.resources = resources
        this.conf = conf
    }

    /** Link the files into the working directory; a file of that name that is no link stays. */
    void localize() throws IOException {
        synchronized (USES) {
            for (Map.Entry<String, LocalResource> entry : resources.entrySet()) {
                Path link = Paths.get(entry.key).toAbsolutePath()
                if (entry.key ==~ LOADED || (Files.exists(link) && !Files.isSymbolicLink(link))) continue
                Use use = USES[link]
                if (use == null) {
                    use = new Use(link, entry.value, conf)
                    USES[link] = use
                }
                use.containers++
                links.add(link)
            }
        }
    }

    /** Remove the links that no other container uses, and the copies that they point to. */
    void cleanup() throws IOException {
        synchronized (USES) {
            for (Path link : links) {
                if (--USES[link].containers == 0) USES.remove(link).remove()
            }
            links.clear()
        }
    }

    /** A link to a local file, or else to the copy of a remote file or of an archive's contents. */
    private static class Use {
        int containers
        private final Path link
        private final Path copies

        Use(Path link, LocalResource resource, Configuration conf) throws IOException {
            this.link = link
            URI uri = resource.resource.toPath().toUri()
            boolean inPlace = uri.scheme == 'file' && resource.type == LocalResourceType.FILE
            copies = inPlace ? null : Files.createTempDirectory('tez-local-cache')
            Files.deleteIfExists(link)
            Files.createSymbolicLink(link, inPlace ? Paths.get(uri.path) : copied(resource, conf))
        }

        private Path copied(LocalResource resource, Configuration conf) {
            org.apache.hadoop.fs.Path place = new org.apache.hadoop.fs.Path(copies.resolve('copy').toUri())
            UserGroupInformation user = UserGroupInformation.currentUser
            FSDownload copy = new FSDownload(FileContext.localFSFileContext, user, conf, place, resource)
            return Paths.get(copy.call().toUri().path)
        }

        void remove() throws IOException {
            Files.deleteIfExists(link)
            if (copies != null) FileUtil.fullyDelete(copies.toFile())
        }
    }
}
