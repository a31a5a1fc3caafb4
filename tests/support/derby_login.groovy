// Prints what Derby's network server answers to a login, and to a database of somebody else's.
// Arguments: JDBC URL, and a file whose one line is the password ("" is none).
import java.sql.SQLException
import org.apache.derby.jdbc.ClientDriver

def password = new File(args[1]).text.trim()
def login = new Properties(password ? [user: 'APP', password: password] : [user: 'APP'])
def answers = [args[0], args[0].replace('metastore_db', 'theirs;create=true')].collect { url ->
    try {
        new ClientDriver().connect(url, login).close()
        'in'
    } catch (SQLException refused) {
        refused.SQLState
    }
}
println answers.join(',')
