// Does what a metastore does with transactions that took it too long to open (TxnHandler.openTxns): they are no
// more, and yet in the map of replicated ones. Prints how many. Arguments: URL of the Derby database, their ids.
def database = new org.apache.derby.jdbc.ClientDriver().connect(args[0], new Properties([user: 'APP']))
def ids = args.drop(1)*.toLong().join(', ')
println database.createStatement().executeUpdate('DELETE FROM TXNS WHERE TXN_ID IN (' + ids + ')')
database.close()
