// Java's ORC reader on files of ours: every row it seeks to is the row it reads in order, and search arguments
// leave out row groups, but no row that they ask for. Arguments: file, rows to seek to, the first and the last
// value of the first column to be found, and columns that ascend with it, each with its type and both bounds.
// Prints how many rows it sought, and how many each argument let through.
import java.time.LocalDate
import java.time.LocalDateTime
import java.time.ZoneOffset
import groovy.transform.CompileStatic
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory
import org.apache.hadoop.hive.serde2.io.HiveDecimalWritable
import org.apache.orc.OrcFile

// Compiled with types, because calls by name take much longer.
@CompileStatic
String shown(VectorizedRowBatch batch, int row) {
  StringBuilder text = new StringBuilder()
  for (column in batch.cols) {
    column.stringifyValue(text, row)
    text.append('|')
  }
  text.toString()
}

def reader = OrcFile.createReader(new Path(args[0]), OrcFile.readerOptions(new Configuration()))
def batch = reader.schema.createRowBatch(200)
def inOrder = []
def rows = reader.rows()
while (rows.nextBatch(batch)) (0..<batch.size).each { inOrder << shown(batch, it) }
assert inOrder.size() == reader.numberOfRows
rows.close()

rows = reader.rows()
def sought = args[1].split(',').collect { it as int }
sought.each { row ->
  rows.seekToRow(row)
  assert rows.nextBatch(batch)
  (0..<batch.size).each { assert shown(batch, it) == inOrder[row + it] : "row ${row + it}" }
}
rows.close()

def (first, last) = [args[2] as long, args[3] as long]
def isWanted = { long id -> first <= id && id <= last }
def wanted = inOrder.findAll { isWanted(it.substring(0, it.indexOf('|')) as long) }
def literals = [
  LONG: { it as long },
  DECIMAL: { new HiveDecimalWritable(it) },
  STRING: { it },
  FLOAT: { it as double },
  // Days and seconds from 1970 on.
  DATE: { java.sql.Date.valueOf(LocalDate.ofEpochDay(it as long)) },
  TIMESTAMP: { java.sql.Timestamp.valueOf(LocalDateTime.ofEpochSecond(it as long, 0, ZoneOffset.UTC)) },
]
def counts = args[4..-1].collect { one ->
  def (name, type, low, high) = one.split(':')
  def literal = literals[type]
  def argument = SearchArgumentFactory.newBuilder()
    .between(name, PredicateLeaf.Type.valueOf(type), literal(low), literal(high)).build()
  def found = reader.rows(reader.options().searchArgument(argument, [name] as String[]))
  def let = []
  def count = 0
  while (found.nextBatch(batch)) {
    count += batch.size
    (0..<batch.size).each { if (isWanted(batch.cols[0].vector[it])) let << shown(batch, it) }
  }
  found.close()
  assert let == wanted : one
  count
}
println "${sought.size()} ${counts.join(' ')}"
System.exit(0)
