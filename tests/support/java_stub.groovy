// Calls rpcs of Hive's gRPC service by Apache's own stub. Argument: the port. Each line of input names an rpc
// and has its request; each line of output has the response, or the status and what the trailers say. A call
// that a line begins runs beside those of later lines, until a line names the rpc again.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import io.grpc.ManagedChannelBuilder
import io.grpc.Metadata
import io.grpc.StatusRuntimeException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit
import org.apache.hadoop.hive.metastore.grpc.GrpcHiveMetastoreGrpc

def channel = ManagedChannelBuilder.forAddress('127.0.0.1', args[0] as int).usePlaintext().build()
def stub = GrpcHiveMetastoreGrpc.newBlockingStub(channel)
def exceptionKey = Metadata.Key.of('hive-exception', Metadata.ASCII_STRING_MARSHALLER)
def methods = stub.class.methods.groupBy { it.name }

def call = { asked ->
    def name = asked.rpc[0].toLowerCase() + asked.rpc.substring(1)
    def method = methods[name].find { it.parameterCount == 1 }
    def request = method.parameterTypes[0].parseFrom(asked.request.decodeBase64())
    if (!request.unknownFields.asMap().isEmpty()) {
        return [code: 'FOREIGN', text: 'the request has fields that the stub does not know']
    }
    try {
        def response = stub.withDeadlineAfter(60, TimeUnit.SECONDS)."$name"(request)
        return response.unknownFields.asMap().isEmpty()
            ? [code: 'OK', data: response.toByteArray().encodeBase64().toString()]
            : [code: 'FOREIGN', text: 'the response has fields that the stub does not know']
    } catch (StatusRuntimeException error) {
        return [code: error.status.code.name(), text: error.status.description ?: '',
                exception: error.trailers?.get(exceptionKey) ?: '']
    }
}
def begun = [:]

System.in.eachLine { line ->
    def asked = new JsonSlurper().parseText(line)
    def told = [:]
    if (asked.begin) {
        begun[asked.rpc] = CompletableFuture.supplyAsync { call(asked) }
    } else {
        told = begun.remove(asked.rpc)?.get() ?: call(asked)
    }
    println JsonOutput.toJson(told)
    System.out.flush()
}
channel.shutdownNow()
