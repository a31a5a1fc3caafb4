// Runs a NameNode and two DataNodes in this JVM, and administrator's commands on them: it reads one JSON object
// per line from standard input, and writes one JSON object per line to the JVM's original standard output.
// Request {"tool": "dfs", "dfsadmin" or "crypto", "arguments": […]}; answer {"code": …, "text": …}.
// With yarn-site.xml on its class path, it runs a ResourceManager and a NodeManager, too.
// Arguments: NameNode's port (0: any free one), lock file, announcement file, directory, parent's process id.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import java.lang.management.ManagementFactory
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets
import java.nio.file.Files
import java.nio.file.Paths
import java.nio.file.StandardCopyOption
import java.nio.file.StandardOpenOption
import org.apache.hadoop.fs.FsShell
import org.apache.hadoop.hdfs.HdfsConfiguration
import org.apache.hadoop.hdfs.tools.CryptoAdmin
import org.apache.hadoop.hdfs.tools.DFSAdmin
import org.apache.hadoop.util.ToolRunner
import org.apache.hadoop.yarn.conf.YarnConfiguration

def (port, lockFile, announcementFile, directory, parent) = args
Lifetime.tieTo(parent as long)

def channel = FileChannel.open(Paths.get(lockFile), StandardOpenOption.CREATE, StandardOpenOption.WRITE)
// The lock keeps two NameNodes from writing to one directory; the kernel releases it when the process dies.
def lock = channel.tryLock()
if (lock == null) {
    System.err.println("FATAL another HDFS is running on ${directory}")
    Runtime.runtime.halt(3)
}

// Hadoop's tools print to System.out; only answers go to the real standard output.
def answers = new PrintStream(System.out, false, 'UTF-8')
System.out = System.err

def conf = new HdfsConfiguration()
// Classes of Hadoop's minicluster are loaded by name, because the other launchers do not have it.
def builder = Class.forName('org.apache.hadoop.hdfs.MiniDFSCluster$Builder')
def data = new File(directory, 'data')
def cluster
def yarn = null
def yarnConf = new YarnConfiguration(conf)
try {
    cluster = builder.newInstance(conf, data)
        .nameNodePort(port as int)
        .format(!new File(data, 'name-0-1').exists())
        .numDataNodes(2)
        .build()
    cluster.waitActive()
    if (getClass().classLoader.getResource('yarn-site.xml') != null) {
        System.setProperty('test.build.data', new File(directory, 'yarn').path)
        yarn = Class.forName('org.apache.hadoop.yarn.server.MiniYARNCluster')
            .getConstructor(String, int, int, int, int).newInstance('yarn', 1, 1, 1, 1)
        yarn.init(yarnConf)
        yarn.start()
        if (!yarn.waitForNodeManagersToConnect(20_000)) {
            throw new IllegalStateException('the NodeManager did not reach the ResourceManager')
        }
        // Containers are processes of their own: the NodeManager ends them.
        Runtime.runtime.addShutdownHook(new Thread({ yarn.stop() }))
    }
} catch (Exception | LinkageError failure) {
    System.err.println("FATAL ${failure}")
    failure.printStackTrace()
    Runtime.runtime.halt(4)
}

def announcement = Paths.get(announcementFile)
def partial = announcement.resolveSibling(".${announcement.fileName}.partial".toString())
def pid = ManagementFactory.runtimeMXBean.name.split('@')[0] as long
def facts = [pid: pid, port: cluster.nameNodePort, http_port: cluster.nameNode.httpAddress.port]
if (yarn != null) {
    def known = yarn.resourceManager.config
    facts.yarn = ['address', 'scheduler.address', 'admin.address', 'webapp.address']
        .collectEntries { ["yarn.resourcemanager.${it}".toString(), known.get("yarn.resourcemanager.${it}".toString())] }
}
partial.toFile().setText(JsonOutput.toJson(facts), 'UTF-8')
Files.move(partial, announcement, StandardCopyOption.ATOMIC_MOVE)
Runtime.runtime.addShutdownHook(new Thread({ Files.deleteIfExists(announcement) }))

def execute = { request ->
    def printed = new ByteArrayOutputStream()
    def stream = new PrintStream(printed, true, 'UTF-8')
    def (out, err) = [System.out, System.err]
    System.out = stream
    System.err = stream
    int code
    try {
        def settings = cluster.getConfiguration(0)
        def tool = [dfs: FsShell, dfsadmin: DFSAdmin, crypto: CryptoAdmin][request.tool].newInstance(settings)
        code = ToolRunner.run(settings, tool, request.arguments as String[])
    } finally {
        System.out = out
        System.err = err
    }
    [code: code, text: printed.toString('UTF-8')]
}

new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).eachLine { line ->
    def answer
    try {
        answer = execute(new JsonSlurper().parseText(line))
    } catch (Exception | LinkageError failure) {
        failure.printStackTrace()
        answer = [code: -1, text: failure.toString()]
    }
    answers.println(JsonOutput.toJson(answer))
    answers.flush()
}
Lifetime.end(0)
