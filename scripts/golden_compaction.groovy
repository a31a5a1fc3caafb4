// Serves the compaction queue with Hive's own worker until it is empty. Argument: most seconds to wait.
import java.util.concurrent.atomic.AtomicBoolean
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient

def conf = new HiveConf()
conf.set('hive.compactor.worker.threads', '1')
def worker = Class.forName('org.apache.hadoop.hive.ql.txn.compactor.Worker').getDeclaredConstructor().newInstance()
worker.conf = conf
worker.name = 'golden'
worker.daemon = true
worker.init(new AtomicBoolean(false))
worker.start()
def client = new HiveMetaStoreClient(conf)
def deadline = System.currentTimeMillis() + (args[0] as int) * 1000
def waiting = { client.showCompactions().compacts.any { it.state in ['initiated', 'working'] } }
while (waiting() && System.currentTimeMillis() < deadline) Thread.sleep(500)
Runtime.runtime.halt(0)
