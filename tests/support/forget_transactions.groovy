// Does what a metastore does with transactions that took it too long to open (TxnHandler.openTxns): they are no
// more, and yet in the map of replicated ones. Prints how many. Arguments: the directory
// of an embedded metastore, URL of its Derby database, their ids.
def settings = new Properties()
new File(args[0], 'derby.properties').withInputStream { settings.load(it) }
def login = new Properties([user: 'APP', password: settings['derby.user.APP']])
def database = new org.apache.derby.jdbc.ClientDriver().connect(args[1], login)
def ids = args.drop(2)*.toLong().join(', ')
println database.createStatement().executeUpdate('DELETE FROM TXNS WHERE TXN_ID IN (' + ids + ')')
database.close()
