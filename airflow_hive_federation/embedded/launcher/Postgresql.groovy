// Creates the metastore's database in its PostgreSQL server, from the template that has Hive's schema.
import java.sql.SQLException
import org.apache.hadoop.hive.metastore.conf.MetastoreConf
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars

class Postgresql {
    static final String EXISTS = '42P04'

    static void createDatabase() {
        def conf = MetastoreConf.newMetastoreConf()
        def (server, name) = (MetastoreConf.getVar(conf, ConfVars.CONNECT_URL_KEY) =~ /^(.*\/)([^\/]+)$/)[0][1, 2]
        def driver = Class.forName('org.postgresql.Driver').newInstance()
        def login = new Properties([
            user: MetastoreConf.getVar(conf, ConfVars.CONNECTION_USER_NAME),
            password: MetastoreConf.getPassword(conf, ConfVars.PWD),
        ])
        def connection = driver.connect("${server}postgres".toString(), login)
        try {
            connection.createStatement().execute("CREATE DATABASE \"${name}\"")
        } catch (SQLException failure) {
            // A metastore continues with the database that it had.
            if (failure.SQLState != EXISTS) {
                throw failure
            }
        } finally {
            connection.close()
        }
    }
}
