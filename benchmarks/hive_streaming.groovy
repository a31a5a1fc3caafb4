// Hive's own HiveStreamingConnection. Arguments: its jar, URI of the metastore. On standard input lines of JSON:
// {"database", "table", "static": [...], "batch": n, "transactions": [{"records": [...], "abort": b}, ...]}.
// In place of records, {"first": n, "count": n, "partitions": n} numbers records and their partitions, if any.
// For each line one: nanoseconds from the first begin to the last commit.
//
// The newest jar that is published is of Hive 3.1. Its classes are linked to Hive 4's here, where they name what has
// another name now, or is gone: constants of HiveConf, two methods, and how a partition is added.
import groovy.json.JsonSlurper
import java.nio.file.Files
import java.util.jar.JarFile
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.metastore.Warehouse
import org.apache.hadoop.hive.metastore.api.AlreadyExistsException
import org.apache.hadoop.hive.metastore.api.Partition
import org.apache.hadoop.hive.metastore.api.StorageDescriptor
import org.apache.hadoop.hive.serde2.Deserializer
import org.objectweb.asm.*

class Gone {
  static void initializeSerDe(Deserializer serde, Configuration conf, Properties table, Properties partition) {
    serde.initialize(conf, table, partition)
  }

  static Object createPartition(Object connection, List<String> values) {
    def table = connection.tableObject.getTTable()
    def name = Warehouse.makePartName(table.partitionKeys, values)
    def storage = new StorageDescriptor(table.sd)
    storage.location = new Path(table.sd.location, name).toString()
    def exists = false
    try {
      connection.getMSC().add_partition(new Partition(values, table.dbName, table.tableName, 0, 0, storage, [:]))
    } catch (AlreadyExistsException ignored) {
      exists = true
    }
    def kind = connection.class.classLoader.loadClass('org.apache.hive.streaming.PartitionInfo')
    return kind.newInstance(name, storage.location, exists)
  }
}

class Linking extends ClassVisitor {
  final Map<String, String> names

  Linking(ClassVisitor next, Map<String, String> names) { super(Opcodes.ASM9, next); this.names = names }

  MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
    def method = super.visitMethod(access, name, descriptor, signature, exceptions)
    if (name != 'createPartitionIfNotExists' || access & Opcodes.ACC_ABSTRACT) return new LinkingMethod(method, names)
    method.visitCode()
    method.visitVarInsn(Opcodes.ALOAD, 0)
    method.visitVarInsn(Opcodes.ALOAD, 1)
    def called = '(Ljava/lang/Object;Ljava/util/List;)Ljava/lang/Object;'
    method.visitMethodInsn(Opcodes.INVOKESTATIC, 'Gone', 'createPartition', called, false)
    method.visitTypeInsn(Opcodes.CHECKCAST, 'org/apache/hive/streaming/PartitionInfo')
    method.visitInsn(Opcodes.ARETURN)
    method.visitMaxs(2, 2)
    method.visitEnd()
    return null
  }
}

class LinkingMethod extends MethodVisitor {
  final Map<String, String> names

  LinkingMethod(MethodVisitor next, Map<String, String> names) { super(Opcodes.ASM9, next); this.names = names }

  void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
    def found = owner == 'org/apache/hadoop/hive/conf/HiveConf$ConfVars' ? names.get(name.replace('_', ''), name) : name
    super.visitFieldInsn(opcode, owner, found, descriptor)
  }

  void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
    def gone = owner == 'org/apache/hadoop/hive/serde2/SerDeUtils' && name == 'initializeSerDe'
    def found = owner.endsWith('/LockComponentBuilder') && name == 'setShared' ? 'setSharedRead' : name
    super.visitMethodInsn(opcode, gone ? 'Gone' : owner, found, descriptor, isInterface)
  }
}

URLClassLoader linked(String path) {
  def names = HiveConf.ConfVars.values().collectEntries { [it.name().replace('_', ''), it.name()] }
  def folder = Files.createTempDirectory('linked').toFile()
  def jar = new JarFile(path)
  jar.entries().findAll { it.name.endsWith('.class') }.each { entry ->
    def writer = new ClassWriter(0)
    new ClassReader(jar.getInputStream(entry).bytes).accept(new Linking(writer, names), 0)
    def file = new File(folder, entry.name)
    file.parentFile.mkdirs()
    file.bytes = writer.toByteArray()
    file.deleteOnExit()
  }
  return new URLClassLoader([folder.toURI().toURL()] as URL[], Gone.classLoader)
}

TimeZone.setDefault(TimeZone.getTimeZone('UTC'))
def out = System.out
System.setOut(System.err)
def loader = linked(args[0])
Thread.currentThread().contextClassLoader = loader
def connections = loader.loadClass('org.apache.hive.streaming.HiveStreamingConnection')
def writers = loader.loadClass('org.apache.hive.streaming.StrictDelimitedInputWriter')
def conf = new HiveConf()
conf.set('metastore.thrift.uris', args[1])
conf.set('hive.metastore.uris', args[1])
// Hadoop's checksummed local files hold back what was flushed.
conf.set('fs.file.impl', 'org.apache.hadoop.fs.RawLocalFileSystem')
List<byte[]> records(Map asked) {
  if (asked.records != null) return asked.records.collect { it.getBytes('UTF-8') }
  return (asked.first..<(asked.first + asked.count)).collect {
    def suffix = asked.partitions ? ",p${it % asked.partitions}" : ''
    String.format('%d,text number %09d%s', it, it, suffix).getBytes('UTF-8')
  }
}

System.in.eachLine('UTF-8') { String line ->
  def asked = new JsonSlurper().parseText(line)
  def writer = writers.newBuilder().withFieldDelimiter(',' as char).build()
  def builder = connections.newBuilder().withDatabase(asked.database).withTable(asked.table)
    .withAgentInfo('hive-streaming').withTransactionBatchSize(asked.batch).withRecordWriter(writer)
    .withHiveConf(conf)
  if (asked.static) builder = builder.withStaticPartitionValues(asked.static as List<String>)
  def connection = builder.connect()
  def given = asked.transactions.collect { records(it) }
  def began = System.nanoTime()
  asked.transactions.eachWithIndex { one, place ->
    connection.beginTransaction()
    for (byte[] record : given[place]) connection.write(record)
    if (one.abort) connection.abortTransaction() else connection.commitTransaction()
  }
  def elapsed = System.nanoTime() - began
  connection.close()
  out.println(elapsed)
  out.flush()
}
System.exit(0)
