// Java's ORC reader on the Bloom filters of a file of ours. Arguments: the file, then column:type:value (dates in
// days from 1970 on), or column:type:!value for one that no row has. Prints of each how many rows a search for it lets through, after it
// has made sure that the rows which have the value are among them.
import java.time.LocalDate
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory
import org.apache.hadoop.hive.serde2.io.HiveDecimalWritable
import org.apache.orc.OrcFile

def reader = OrcFile.createReader(new Path(args[0]), OrcFile.readerOptions(new Configuration()))
def names = reader.schema.fieldNames
def literals = [
  LONG: { it as long },
  DECIMAL: { new HiveDecimalWritable(it) },
  STRING: { it },
  FLOAT: { it as double },
  DATE: { java.sql.Date.valueOf(LocalDate.ofEpochDay(it as long)) },
]

def shown(column, int row) {
  def text = new StringBuilder()
  column.stringifyValue(text, row)
  text.toString().replaceAll('^"|"$', '')
}

def having(rows, batch, int place, String value) {
  def (all, found) = [0, 0]
  while (rows.nextBatch(batch)) {
    all += batch.size
    found += (0..<batch.size).count { shown(batch.cols[place], it) == value }
  }
  rows.close()
  [all, found]
}

def counts = args[1..-1].collect { one ->
  def (name, type, said) = one.split(':')
  def value = said - '!'
  def batch = reader.schema.createRowBatch(1000)
  def argument = SearchArgumentFactory.newBuilder().equals(name, PredicateLeaf.Type.valueOf(type), literals[type](value)).build()
  def found = reader.rows(reader.options().searchArgument(argument, [name] as String[]))
  def (let, hits) = having(found, batch, names.indexOf(name), value)
  def (_, expected) = having(reader.rows(), batch, names.indexOf(name), value)
  assert hits == expected && (expected > 0) == !said.startsWith('!') : one
  let
}
println "${reader.compressionKind} ${counts.join(' ')}"
System.exit(0)
