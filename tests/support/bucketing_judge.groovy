// Hive's own bucketing of values that come as lines of JSON: {"types": [...], "rows": [[...], ...]}.
// For each line one line of answers: "v1:v2" hash codes of every row and their numbers among 7 buckets.
import groovy.json.JsonSlurper
import org.apache.hadoop.hive.common.type.Date
import org.apache.hadoop.hive.common.type.HiveChar
import org.apache.hadoop.hive.common.type.HiveDecimal
import org.apache.hadoop.hive.common.type.HiveVarchar
import java.time.ZoneId
import org.apache.hadoop.hive.common.type.Timestamp
import org.apache.hadoop.hive.common.type.TimestampTZ
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils
import org.apache.hadoop.hive.serde2.typeinfo.*

Object value(Object json, TypeInfo type) {
  if (json == null) return null
  switch (type.category) {
    case ObjectInspector.Category.LIST: return json.collect { value(it, type.listElementTypeInfo) }
    case ObjectInspector.Category.MAP:
      def map = new LinkedHashMap()
      json.each { map.put(value(it[0], type.mapKeyTypeInfo), value(it[1], type.mapValueTypeInfo)) }
      return map
    case ObjectInspector.Category.STRUCT:
      def infos = type.allStructFieldTypeInfos
      return (0..<infos.size()).collect { value(json[it], infos[it]) }
  }
  switch (type.typeName.replaceAll(/\(.*/, '')) {
    case 'boolean': return Boolean.valueOf(json)
    case 'tinyint': return Byte.valueOf(json as String)
    case 'smallint': return Short.valueOf(json as String)
    case 'int': return Integer.valueOf(json as String)
    case 'bigint': return Long.valueOf(json as String)
    case 'float': return Float.intBitsToFloat(Integer.parseUnsignedInt(json as String))
    case 'double': return Double.longBitsToDouble(Long.parseUnsignedLong(json as String))
    case 'decimal': return HiveDecimal.create(json as String)
    case 'string': return json as String
    case 'char': return new HiveChar(json as String, type.length)
    case 'varchar': return new HiveVarchar(json as String, type.length)
    case 'binary': return (json as String).decodeHex()
    case 'date': return Date.ofEpochDay(json as int)
    case 'timestamp': return Timestamp.ofEpochSecond(json[0] as long, json[1] as int)
    case 'timestamp with local time zone': return new TimestampTZ(json[0] as long, json[1] as int, ZoneId.of('UTC'))
  }
  throw new IllegalArgumentException(type.typeName)
}

TimeZone.setDefault(TimeZone.getTimeZone('UTC'))
def out = new PrintStream(new FileOutputStream(args[0]), true, 'UTF-8')
System.in.eachLine('UTF-8') { String line ->
  def asked = new JsonSlurper().parseText(line)
  def infos = asked.types.collect { TypeInfoUtils.getTypeInfoFromTypeString(it) }
  def inspectors = infos.collect { TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(it) } as ObjectInspector[]
  out.println(asked.rows.collect { row ->
    def values = (0..<infos.size()).collect { value(row[it], infos[it]) } as Object[]
    [ObjectInspectorUtils.getBucketHashCodeOld(values, inspectors), ObjectInspectorUtils.getBucketHashCode(values, inspectors),
     ObjectInspectorUtils.getBucketNumberOld(values, inspectors, 7), ObjectInspectorUtils.getBucketNumber(values, inspectors, 7)].join(':')
  }.join(' '))
}
out.close()
System.exit(0)
