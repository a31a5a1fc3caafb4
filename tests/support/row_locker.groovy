// Locks the rows of partitions in PostgreSQL, last partition first, in one transaction after the other, until a
// file appears; then prints how many of them PostgreSQL ended because of a deadlock.
// Arguments: JDBC URL, a file whose one line is the password, the file to wait for, and a file for the process
// id of its connection.
import java.sql.SQLException

def (url, passwordFile, stop, pidFile) = args
def login = new Properties([user: 'hive', password: new File(passwordFile).text.trim()])
def connection = Class.forName('org.postgresql.Driver').newInstance().connect(url, login)
def statement = connection.createStatement()
// The other side's wait ends first.
statement.execute("SET deadlock_timeout = '2s'")
def numbers = { sql -> def rows = statement.executeQuery(sql), all = []; while (rows.next()) all << rows.getLong(1); all }
new File(pidFile).text = numbers('SELECT pg_backend_pid()')[0]
def partitions = numbers('SELECT "PART_ID" FROM "PARTITIONS" JOIN "TBLS" USING ("TBL_ID") ' +
    'JOIN "DBS" USING ("DB_ID") WHERE "NAME" = \'dead\' ORDER BY 1 DESC')
connection.autoCommit = false
def ended = 0
for (int round = 0; round < 5000 && !new File(stop).exists(); round++) {
    try {
        for (partition in partitions) {
            statement.executeUpdate("UPDATE \"PARTITIONS\" SET \"LAST_ACCESS_TIME\" = ${round} WHERE \"PART_ID\" = ${partition}".toString())
            Thread.sleep(1)
        }
        connection.commit()
    } catch (SQLException failure) {
        connection.rollback()
        if (failure.SQLState != '40P01') {
            throw failure
        }
        ended++
    }
}
println ended
