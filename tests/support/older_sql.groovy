// SQL engine of an older Hive, which casts the class loader of its classes to URLClassLoader: it gets one.
// Arguments: a file that names its class path, one entry a line; perhaps a source to compile against it, and the
// directory of that class path where the class goes. Each line of input has a statement, or a setting, each line of
// output its rows, or the error.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import org.codehaus.groovy.control.CompilationUnit
import org.codehaus.groovy.control.CompilerConfiguration

def classPath = new File(args[0]).readLines()
if (args.length > 1) {
    def target = new File(args[2])
    target.mkdirs()
    def unit = new CompilationUnit(new CompilerConfiguration(targetDirectory: target, classpathList: classPath))
    unit.addSource(new File(args[1]))
    unit.compile()
}
def urls = classPath.collect { new File(it).toURI().toURL() } as URL[]
def loader = new URLClassLoader(urls, ClassLoader.platformClassLoader)
Thread.currentThread().contextClassLoader = loader
// Hive prints where it likes; only answers go to the real standard output.
def answers = new PrintStream(System.out, true, 'UTF-8')
System.out = System.err
def named = { String name -> loader.loadClass("org.apache.hadoop.hive.$name") }

def state = named('ql.session.SessionState')
def conf = named('conf.HiveConf').getConstructor(Class).newInstance(state)
conf.setClassLoader(loader)
def session = state.getConstructor(conf.class).newInstance(conf)
session.out = session.err = session.info = new PrintStream(System.err, true, 'UTF-8')
state.getMethod('start', state).invoke(null, session)
def factory = named('ql.processors.CommandProcessorFactory').getMethod('get', String[], conf.class)

def execute = { String sql ->
    def driver = factory.invoke(null, sql.split(/\s+/) as String[], conf)
    try {
        def done = driver.run(sql)
        if (done.responseCode) return [error: done.errorMessage ?: done.toString()]
        def rows = []
        def batch = []
        while (driver.schema?.fieldSchemas && driver.getResults(batch)) {
            rows.addAll(batch.collect { it as String })
            batch.clear()
        }
        [rows: rows]
    } finally {
        driver.close()
    }
}

System.in.eachLine('UTF-8') { line ->
    def answer
    try {
        def request = new JsonSlurper().parseText(line)
        request.set?.each { name, value -> conf.set(name, value) }
        answer = request.sql ? execute(request.sql) : [rows: []]
    } catch (Exception | LinkageError failure) {
        failure.printStackTrace()
        answer = [error: failure.toString()]
    }
    answers.println(JsonOutput.toJson(answer))
}
// Hive's threads are no daemons.
Runtime.runtime.halt(0)
