package org.apache.hadoop.hive.ql.exec

import org.apache.hive.com.esotericsoftware.kryo.Kryo
import org.apache.hive.com.esotericsoftware.kryo.Serializer
import org.apache.hive.com.esotericsoftware.kryo.io.Input
import org.apache.hive.com.esotericsoftware.kryo.io.Output

// In the place of Hive 3.1's own, which wants a field of java.util.ArrayList$SubList that Java 9 has dropped: all
// that keeps Hive 3.1 from running on a Java of today.
class SerializationUtilities$ArrayListSubListSerializer extends Serializer<List> {
    void write(Kryo kryo, Output output, List list) { kryo.writeClassAndObject(output, new ArrayList(list)) }

    List read(Kryo kryo, Input input, Class<List> type) { (List) kryo.readClassAndObject(input) }
}
