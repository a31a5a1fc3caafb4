// A Spark for which there is an Iceberg: a JSON statement a line in, a JSON answer a line out.
//
// args: properties of the session, name=value. What Spark logs goes to stderr.

import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import org.apache.spark.sql.classic.SparkSession

def answers = System.out
System.setOut(System.err)
def builder = SparkSession.builder()
args.each { property ->
    def (name, value) = property.split('=', 2)
    builder.config(name, value)
}
def spark = builder.getOrCreate()
System.in.eachLine('UTF-8') { line ->
    def answer
    try {
        answer = spark.sql(new JsonSlurper().parseText(line).statement).toJSON().collectAsList().collect { it }
    } catch (Exception error) {
        answer = [error: error.toString()]
    }
    answers.println(JsonOutput.toJson(answer))
    answers.flush()
}
spark.stop()
