// The partitions that Kafka's own producer chooses: of each key in a file, a line of hex each, a line with its hash and
// its partition among so many. Compiled and run with its class path.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class Partitions {
    public static void main(String[] given) throws Exception {
        for (String line : Files.readAllLines(Path.of(given[0]))) {
            byte[] key = HexFormat.of().parseHex(line);
            System.out.println(Utils.murmur2(key) + ","
                + BuiltInPartitioner.partitionForKey(key, Integer.parseInt(given[1])));
        }
    }
}
