// Creates a Derby database from SQL scripts. Arguments: its directory, and the scripts in order.
import java.sql.SQLException
import org.apache.derby.jdbc.EmbeddedDriver

def (directory, scripts) = [args[0], args.drop(1)]
def credentials = new Properties([user: 'APP', password: 'mine'])
def connection = new EmbeddedDriver().connect("jdbc:derby:${directory};create=true".toString(), credentials)
connection.autoCommit = false
def statement = connection.createStatement()
for (script in scripts) {
    def text = new File(script).readLines('UTF-8').findAll { !it.trim().startsWith('--') }.join('\n')
    for (sql in text.split(/;\s*(?:\n|$)/)*.trim().findAll()) {
        try {
            statement.execute(sql)
        } catch (SQLException failure) {
            System.err.println("FATAL ${script}: ${failure.message} in: ${sql}")
            System.exit(1)
        }
    }
}
connection.commit()
connection.close()
try {
    new EmbeddedDriver().connect("jdbc:derby:${directory};shutdown=true".toString(), new Properties())
} catch (SQLException stopped) {
    // Derby reports an orderly shutdown as this exception.
    if (stopped.SQLState != '08006') {
        throw stopped
    }
}
