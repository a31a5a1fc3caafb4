// Prints whether Hive's metastore tries again what Derby has given up. Argument: its metastore-site.xml.
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.metastore.txn.retry.SqlRetryHandler

def conf = new Configuration(false)
conf.addResource(new Path(args[0]))
// As Derby's driver tells it of statements sent together.
def given_up = new java.sql.BatchUpdateException(
    'A lock could not be obtained due to a deadlock, cycle of locks and waiters is:\nLock : ROW, WRITE_SET, (2,119)',
    'XJ208', new int[0])
println SqlRetryHandler.isRetryable(conf, given_up)
