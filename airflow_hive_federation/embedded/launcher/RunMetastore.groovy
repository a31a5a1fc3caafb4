// Runs Hive's metastore and writes its ports to the announcement file.
// Arguments: Thrift port and the database's port (0: any free one, for Derby), lock file, announcement file,
// name, directory, parent's process id or 0, kind of the database (derby, postgresql or mariadb), file of the
// statements of its schema (-: new databases have it).
import groovy.json.JsonOutput
import java.lang.management.ManagementFactory
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.Paths
import java.nio.file.StandardCopyOption
import java.nio.file.StandardOpenOption
import java.sql.SQLException
import org.apache.derby.drda.NetworkServerControl
import org.apache.hadoop.hive.metastore.HiveMetaStore
import org.apache.thrift.server.TServer

def (port, jdbcPort, lockFile, announcementFile, name, directory, parent, database, schema) = args
if (parent != '0') {
    Lifetime.tieToInput(System.in)
    Lifetime.tieTo(parent as long)
}

// The kernel releases this lock when the process dies, even if it is killed: the lock distinguishes a live
// metastore from a stale announcement, and keeps a second metastore from the same Derby directory.
def channel = FileChannel.open(Paths.get(lockFile), StandardOpenOption.CREATE, StandardOpenOption.WRITE)
def lock = channel.tryLock()
// A process that checks the lock holds it for a moment.
for (int attempt = 0; lock == null && attempt < 20; attempt++) {
    Thread.sleep(50)
    lock = channel.tryLock()
}
if (lock == null) {
    System.err.println("FATAL another metastore is running on ${directory}")
    Runtime.runtime.halt(3)
}

if (database != 'derby') {
    try {
        ServerDatabase.create(database, schema)
    } catch (SQLException failure) {
        System.err.println("FATAL ${failure}")
        Runtime.runtime.halt(4)
    }
}

def server = HiveMetaStore.getDeclaredField('thriftServer')
server.accessible = true
Thread.start('metastore') {
    try {
        HiveMetaStore.main(['-p', port] as String[])
    } catch (Throwable failure) {
        System.err.println("FATAL ${failure}")
        failure.printStackTrace()
        Runtime.runtime.halt(4)
    }
}

def boundPort(thriftServer) {
    // Hive logs the requested port, which is 0: the actual one is in the socket of its server.
    def held = thriftServer.class.declaredFields.find { TServer.isAssignableFrom(it.type) }
    held.accessible = true
    def transport = TServer.getDeclaredField('serverTransport_')
    transport.accessible = true
    transport.get(held.get(thriftServer)).serverSocket.localPort
}

def startDerbyServer(int wanted) {
    // Hive's SQL engine enqueues compactions by JDBC, without the metastore.
    def loopback = InetAddress.getByName('127.0.0.1')
    for (int attempt = 1; ; attempt++) {
        def chosen = wanted ?: new ServerSocket(0, 1, loopback).withCloseable { it.localPort }
        try {
            new NetworkServerControl(loopback, chosen).start(null)
            return chosen
        } catch (Exception taken) {
            // Another process may have taken the free port before the server bound it.
            if (wanted || attempt == 5) {
                throw taken
            }
        }
    }
}

while (server.get(null) == null || !server.get(null).isRunning()) {
    Thread.sleep(10)
}
def announcement = Paths.get(announcementFile)
def partial = announcement.resolveSibling(".${announcement.fileName}.partial".toString())
def bound = database == 'derby' ? startDerbyServer(jdbcPort as int) : jdbcPort as int
def pid = ManagementFactory.runtimeMXBean.name.split('@')[0] as long
def facts = [name: name, directory: directory, pid: pid, port: boundPort(server.get(null)), jdbc_port: bound]
partial.toFile().setText(JsonOutput.toJson(facts), 'UTF-8')
Files.move(partial, announcement, StandardCopyOption.ATOMIC_MOVE)
Runtime.runtime.addShutdownHook(new Thread({ Files.deleteIfExists(announcement) }))
Thread.currentThread().join()
