// Prints what Derby's network server answers to logins, and to each for a database of somebody else's.
// Arguments: JDBC URL, and a file with a password per line (a line without one is a login without).
import java.sql.SQLException
import org.apache.derby.jdbc.ClientDriver

def answers = new File(args[1]).readLines().collectMany { password ->
    def login = new Properties()
    login.putAll(password ? [user: 'APP', password: password] : [user: 'APP'])
    [args[0], args[0].replace('metastore_db', 'theirs;create=true')].collect { url ->
        try {
            new ClientDriver().connect(url, login).close()
            'in'
        } catch (SQLException refused) {
            refused.SQLState
        }
    }
}
println answers.join(',')
