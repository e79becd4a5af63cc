// Iterates the records of a segment with kafka-clients; run as a single source file on Kafka's class path.
//
//   Iterate FILE      for every line on standard input one pass over FILE, mapped, and with checksums if the line is
//                     "check"; prints the records found and the nanoseconds that the pass took

import java.io.*;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.kafka.common.record.*;

public class Iterate {
    static long sink;       // what is read must matter, or the compiler leaves it out

    public static void main(String[] given) throws IOException {
        ByteBuffer data;
        try (FileChannel file = FileChannel.open(Path.of(given[0]))) {
            data = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
        }
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long start = System.nanoTime();
            long count = pass(data, line.equals("check"));
            System.out.println(count + " " + (System.nanoTime() - start));
        }
        System.err.println(sink);
    }

    static long pass(ByteBuffer data, boolean check) {
        long count = 0, sum = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(data.duplicate()).batches()) {
            if (check)
                batch.ensureValid();
            for (org.apache.kafka.common.record.Record record : batch) {
                sum += record.offset() ^ record.timestamp();
                ByteBuffer key = record.key(), value = record.value();
                sum += (key == null ? 0 : key.remaining()) + (value == null ? 0 : value.remaining());
                count++;
            }
        }
        sink += sum;
        return count;
    }
}
