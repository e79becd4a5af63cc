// Kafka's own table of error codes, as lines of code,name,retriable. Compiled and run with its class path.

import org.apache.kafka.common.errors.RetriableException;

public class Errors {
    public static void main(String[] given) {
        for (var error : org.apache.kafka.common.protocol.Errors.values())
            System.out.println(error.code() + "," + error.name() + ","
                + (error.exception() instanceof RetriableException));
    }
}
