// Java's ORC reader on files of ours: every row it seeks to is the row it reads in order, and a search
// argument leaves out row groups, but no row that it asks for. Arguments: file, rows to seek to, low and high of
// the first column, which is ascending. Prints how many rows it sought and how many the argument let through.
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory
import org.apache.orc.OrcFile

def shown(batch, int row) {
  def text = new StringBuilder()
  batch.cols.each { it.stringifyValue(text, row); text.append('|') }
  text.toString()
}

def reader = OrcFile.createReader(new Path(args[0]), OrcFile.readerOptions(new Configuration()))
def batch = reader.schema.createRowBatch(1000)
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

def (low, high) = [args[2] as long, args[3] as long]
def name = reader.schema.fieldNames[0]
def argument = SearchArgumentFactory.newBuilder().between(name, PredicateLeaf.Type.LONG, low, high).build()
rows = reader.rows(reader.options().searchArgument(argument, [name] as String[]))
def let = []
while (rows.nextBatch(batch)) (0..<batch.size).each { let << shown(batch, it) }
rows.close()
def number = { (it as String).split('\\|')[0] as long }
assert let.findAll { number(it) in (low..high) } == inOrder.findAll { number(it) in (low..high) }
println "${sought.size()} ${let.size()}"
System.exit(0)
