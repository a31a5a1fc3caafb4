// Replaces the class by which Tez's local mode hands files to the tasks of a query. Tez's own copies each file
// for each container, with seven forks, and links the copy into the working directory. Hive names its own jar as
// such a file: 87 MB per container, although the classes are in this JVM already.
package org.apache.tez.dag.app.launcher

import groovy.transform.CompileStatic
import java.nio.file.FileAlreadyExistsException
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

    private final Map<String, LocalResource> resources
    private final Configuration conf
    private final List<Path> links = []
    private Path downloads

    TezLocalCacheManager(Map<String, LocalResource> resources, Configuration conf) {
        this.resources = resources
        this.conf = conf
    }

    /** Link the files into the working directory; a name that another container has linked stays. */
    void localize() throws IOException {
        for (Map.Entry<String, LocalResource> entry : resources.entrySet()) {
            Path link = Paths.get(entry.key).toAbsolutePath()
            if (entry.key ==~ LOADED || Files.exists(link)) continue
            try {
                Files.createSymbolicLink(link, local(entry.key, entry.value))
                links.add(link)
            } catch (FileAlreadyExistsException ignored) {
                continue
            }
        }
    }

    /** Remove the links of this container, and the copies that they point to. */
    void cleanup() throws IOException {
        for (Path link : links) Files.deleteIfExists(link)
        if (downloads != null) FileUtil.fullyDelete(downloads.toFile())
    }

    /** Return the local file itself, or else the copy of a remote file or of an archive's contents. */
    private Path local(String name, LocalResource resource) {
        URI uri = resource.resource.toPath().toUri()
        if (uri.scheme == 'file' && resource.type == LocalResourceType.FILE) return Paths.get(uri.path)
        if (downloads == null) downloads = Files.createTempDirectory('tez-local-cache')
        org.apache.hadoop.fs.Path place = new org.apache.hadoop.fs.Path(downloads.resolve(name).toUri())
        UserGroupInformation user = UserGroupInformation.currentUser
        FSDownload copy = new FSDownload(FileContext.localFSFileContext, user, conf, place, resource)
        return Paths.get(copy.call().toUri().path)
    }
}
