// Reads what a writer of Lumberjack sent; run as a single source file on Camel's class path.
//
//   Decode FILE      for every line on standard input one pass over FILE, in memory: with Camel's decoder if the line
//                    is "camel", else with the loop below; prints the events found and the pass's nanoseconds

import io.netty.buffer.*;
import io.netty.channel.ChannelHandler;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.camel.component.lumberjack.io.LumberjackWindow;

public class Decode {
    static final int READ = 64 << 10;       // bytes that a socket gives at a time
    static long sink;                       // what is read must matter, or the compiler leaves it out

    record Event(int sequence, byte[] json) {}

    public static void main(String[] given) throws Exception {
        byte[] data = Files.readAllBytes(Path.of(given[0]));
        var decoder = Class.forName("org.apache.camel.component.lumberjack.io.LumberjackFrameDecoder")
            .getDeclaredConstructor();
        decoder.setAccessible(true);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long start = System.nanoTime();
            long count = line.equals("camel") ? camel((ChannelHandler) decoder.newInstance(), data) : loop(data);
            System.out.println(count + " " + (System.nanoTime() - start));
        }
        System.err.println(sink);
    }

    /** Camel's decoder, which gives windows of messages: their JSON parsed, or a map of the pairs. */
    static long camel(ChannelHandler decoder, byte[] data) {
        var channel = new EmbeddedChannel(decoder);
        long count = 0;
        for (int at = 0; at < data.length; at += READ) {
            channel.writeInbound(Unpooled.wrappedBuffer(data, at, Math.min(READ, data.length - at)));
            for (LumberjackWindow window; (window = channel.readInbound()) != null;)
                for (Object message : (Iterable<?>) window) {       // their class is not public
                    sink ^= System.identityHashCode(message);
                    count++;
                }
        }
        channel.finish();
        return count;
    }

    /** The least that gives events which outlive the buffer: an array of bytes for each, in windows. J frames only. */
    static long loop(byte[] given) {
        ByteBuffer data = ByteBuffer.wrap(given);
        var window = new ArrayList<Event>();
        long count = 0;
        while (data.remaining() >= 6) {
            byte version = data.get(), type = data.get();
            if (version != '1' && version != '2' || type != 'W' && type != 'J')
                throw new IllegalStateException("not a frame");
            int number = data.getInt();
            if (type == 'W') {
                sink ^= window.size();
                window = new ArrayList<>(number);
                continue;
            }
            byte[] json = new byte[data.getInt()];
            data.get(json);
            window.add(new Event(number, json));
            count++;
        }
        return count;
    }
}
