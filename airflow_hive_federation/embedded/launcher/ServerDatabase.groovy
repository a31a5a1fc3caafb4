// Creates the metastore's database in its server: PostgreSQL's from the template that has Hive's schema, MariaDB's
// by the schema's statements.
import groovy.json.JsonSlurper
import java.sql.Connection
import java.sql.SQLException
import org.apache.hadoop.hive.metastore.conf.MetastoreConf
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars

class ServerDatabase {
    static final String EXISTS = '42P04'
    // A database has this table until its schema is complete, because MariaDB commits each table by itself.
    static final String UNFINISHED = 'UNFINISHED_SCHEMA'

    static void create(String kind, String schema) {
        def conf = MetastoreConf.newMetastoreConf()
        def (server, name) = (MetastoreConf.getVar(conf, ConfVars.CONNECT_URL_KEY) =~ /^(.*\/)([^\/]+)$/)[0][1, 2]
        def driver = Class.forName(MetastoreConf.getVar(conf, ConfVars.CONNECTION_DRIVER)).newInstance()
        def login = new Properties([
            user: MetastoreConf.getVar(conf, ConfVars.CONNECTION_USER_NAME),
            password: MetastoreConf.getPassword(conf, ConfVars.PWD),
        ])
        def connection = driver.connect("${server}${kind == 'postgresql' ? 'postgres' : ''}".toString(), login)
        try {
            kind == 'postgresql' ? createPostgresql(connection, name) : createMariadb(connection, name, schema)
        } finally {
            connection.close()
        }
    }

    // A metastore continues with the database that it had.

    private static void createPostgresql(Connection connection, String name) {
        try {
            connection.createStatement().execute("CREATE DATABASE \"${name}\"".toString())
        } catch (SQLException failure) {
            if (failure.SQLState != EXISTS) {
                throw failure
            }
        }
    }

    private static void createMariadb(Connection connection, String name, String schema) {
        def tables = tablesOf(connection, name)
        if (tables && !(UNFINISHED in tables)) {
            return
        }
        def statement = connection.createStatement()
        statement.execute("DROP DATABASE IF EXISTS `${name}`".toString())
        // The character set of Hive's tables.
        statement.execute("CREATE DATABASE `${name}` CHARACTER SET latin1".toString())
        connection.catalog = name
        statement.execute("CREATE TABLE ${UNFINISHED} (A INT)".toString())
        new JsonSlurper().parse(new File(schema)).each { statement.execute(it) }
        statement.execute("DROP TABLE ${UNFINISHED}".toString())
    }

    private static List<String> tablesOf(Connection connection, String name) {
        def query = connection.prepareStatement('SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?')
        query.setString(1, name)
        def rows = query.executeQuery(), tables = []
        while (rows.next()) {
            tables << rows.getString(1)
        }
        tables
    }
}
