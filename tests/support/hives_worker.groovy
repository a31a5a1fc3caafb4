// Serves the compaction queue with Hive's own worker until it is empty. Argument: most seconds to wait.
import java.util.concurrent.atomic.AtomicBoolean
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient
import org.apache.hadoop.hive.metastore.api.TxnState

def conf = new HiveConf()
conf.set('hive.compactor.worker.threads', '1')
// It would gather statistics after the compaction's end, in a transaction that its own end would leave open.
conf.set('hive.compactor.gather.stats', 'false')
conf.set('hive.mr.compactor.gather.stats', 'false')
def worker = Class.forName('org.apache.hadoop.hive.ql.txn.compactor.Worker').getDeclaredConstructor().newInstance()
worker.conf = conf
worker.name = 'judge'
worker.daemon = true
worker.init(new AtomicBoolean(false))
def client = new HiveMetaStoreClient(conf)
def open = { client.showTxns().open_txns.findAll { it.state == TxnState.OPEN }*.id as Set }
def others = open()
worker.start()
def deadline = System.currentTimeMillis() + (args[0] as int) * 1000
// A request is marked ready for cleaning before its transaction commits: a worker that ended in between would
// leave a transaction open that holds the cleaner back.
def waiting = {
    client.showCompactions().compacts.any { it.state in ['initiated', 'working'] } ||
        !(open() - others).empty
}
while (waiting() && System.currentTimeMillis() < deadline) Thread.sleep(500)
def stuck = waiting()
if (stuck) System.err.println("queue: ${client.showCompactions().compacts}\ntransactions: ${client.showTxns().open_txns}")
Runtime.runtime.halt(stuck ? 1 : 0)
