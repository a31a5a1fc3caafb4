// Runs statements in Hive's own SQL engine, with Tez inside this JVM: it reads one JSON object per line from
// standard input, and writes one JSON object per line to the JVM's original standard output.
// Request {"sql": …}; answer {"columns": […], "rows": [[…], …]} or {"error": …, "code": …}. The first line is
// {"ready": true}.
// Argument: parent's process id.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import java.nio.charset.StandardCharsets
import java.nio.file.Files
import java.nio.file.Paths
import org.apache.hadoop.fs.FileStatus
import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.common.FileUtils
import org.apache.hadoop.hive.common.io.SessionStream
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.ql.IDriver
import org.apache.hadoop.hive.ql.processors.CommandProcessorException
import org.apache.hadoop.hive.ql.processors.CommandProcessorFactory
import org.apache.hadoop.hive.ql.session.SessionState

Lifetime.tieTo(args[0] as long)

// Hive prints to System.out; only answers go to the real standard output.
def answers = new PrintStream(System.out, false, 'UTF-8')
System.out = System.err
def answer = { Map content -> answers.println(JsonOutput.toJson(content)); answers.flush() }

def conf = new HiveConf(SessionState)
// Rows are Java values, not lines of text, so that a tab in a value stays a tab, and NULL is null.
conf.set('list.sink.output.formatter', 'org.apache.hadoop.hive.serde2.thrift.ThriftFormatter')
conf.set('list.sink.output.protocol', '10')

// Hive publishes its own jar for tasks on other machines: it computes the digest of 87 MB, for a second, and
// copies them into /user, which only root may create. Our tasks run in this JVM: a link is enough, and any digest.
// The classes are loaded by name, because the launchers are compiled without Tez.
def digest = 'linked'
def dags = Class.forName('org.apache.hadoop.hive.ql.exec.tez.DagUtils')
def sessions = Class.forName('org.apache.hadoop.hive.ql.exec.tez.TezSessionState')
def jar = FileUtils.resolveSymlinks(new Path(dags.getInstance().getExecJarPathLocal(conf)), conf)
def key = sessions.getDeclaredMethod('getKey', FileStatus)
def digests = sessions.getDeclaredField('shaCache')
key.accessible = true
digests.accessible = true
def known = key.invoke(sessions.newInstance('', conf), FileSystem.getLocal(conf).getFileStatus(jar))
digests.get(null).put(known, digest)
def published = Files.createDirectories(Paths.get('scratch', 'jars').toAbsolutePath())
conf.set('hive.jar.directory', published.toUri().toString())
def link = published.resolve(jar.name.replaceFirst(/\.jar$/, "-${digest}.jar"))
Files.deleteIfExists(link)
Files.createSymbolicLink(link, Paths.get(jar.toUri().path))

def session = new SessionState(conf)
def printed = new ByteArrayOutputStream()
session.out = new SessionStream(printed, true, 'UTF-8')
session.err = new SessionStream(System.err, true, 'UTF-8')
session.info = new SessionStream(System.err, true, 'UTF-8')
session.setIsHiveServerQuery(false)
SessionState.start(session)

def text = { value, String type ->
    def scale = type =~ /^decimal\(\d+,(\d+)\)$/
    value == null ? null
        : value instanceof byte[] ? value.encodeHex().toString()
        // A decimal has all digits of its scale, as in Hive's own command line.
        : scale ? new BigDecimal(value.toString()).setScale(scale[0][1] as int).toPlainString()
        : value.toString()
}

def rowsOf = { driver ->
    def types = driver.schema.fieldSchemas*.type
    def rows = []
    def batch = []
    while (driver.getResults(batch)) {
        // A row that a task wrote as text has tabs between its columns; a row of a query is an array of
        // values.
        rows.addAll(batch.collect { row ->
            row instanceof String ? row.split('\t', -1) as List
                : row.toList().withIndex().collect { value, column -> text(value, types[column]) }
        })
        batch.clear()
    }
    rows
}

def execute = { String sql ->
    def processor = CommandProcessorFactory.get(sql.trim().split(/\s+/), session.conf)
    if (!(processor instanceof IDriver)) {
        printed.reset()
        processor.run(sql.trim().replaceFirst(/^\S+\s*/, ''))
        return [columns: [], rows: printed.toString('UTF-8').readLines().collect { [it] }]
    }
    try {
        processor.run(sql)
        def columns = processor.schema?.fieldSchemas*.name ?: []
        return [columns: columns, rows: columns ? rowsOf(processor) : []]
    } finally {
        processor.close()
        processor.destroy()
    }
}

answer(ready: true)
new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).eachLine { line ->
    try {
        answer(execute(new JsonSlurper().parseText(line).sql))
    } catch (CommandProcessorException failure) {
        answer(error: failure.message ?: failure.toString(), code: failure.responseCode)
    } catch (Exception | LinkageError failure) {
        failure.printStackTrace()
        answer(error: failure.toString(), code: -1)
    }
}
Lifetime.end(0)
