// Writes delta directories as Hive's streaming does: several write ids in one file, some of which abort.
// Arguments: table directory, first write id, last write id, bucket, rows per write id, close | leave-open.
// Row (id, name): id = write id * 1000 + n.
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.ql.io.AcidOutputFormat
import org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorFactory as Primitives

def (directory, first, last, bucket, rows, ending) = [args[0], args[1] as long, args[2] as long, args[3] as int, args[4] as int, args[5]]
def conf = new HiveConf()
// Hadoop's checksummed local files hold back what was flushed.
conf.set('fs.file.impl', 'org.apache.hadoop.fs.RawLocalFileSystem')
conf.set('columns', 'id,name')
conf.set('columns.types', 'int:string')
def inspector = ObjectInspectorFactory.getStandardStructObjectInspector(
  ['id', 'name'], [Primitives.javaIntObjectInspector, Primitives.javaStringObjectInspector])
def options = new AcidOutputFormat.Options(conf).inspector(inspector).bucket(bucket)
  .minimumWriteId(first).maximumWriteId(last).statementId(-1).recordIdColumn(-1)
  .tableProperties(new Properties(['columns': 'id,name', 'columns.types': 'int:string'] as Properties))
def writer = new OrcOutputFormat().getRecordUpdater(new Path(directory), options)
(first..last).each { id ->
  rows.times { writer.insert(id, [(int) (id * 1000 + it), "row ${id}/${it}".toString()]) }
  writer.flush()
}
if (ending == 'close') writer.close(false)
Runtime.runtime.halt(0)
