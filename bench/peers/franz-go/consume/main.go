// Reads a topic with franz-go's client.
//
//	consume ADDRESS TOPIC PARTITIONS RECORDS
//
// For every line on standard input it makes one pass from the beginning, until it has RECORDS records. It prints the
// number of records, the bytes of keys and of values, the largest offset, and the nanoseconds of the pass. The client
// stays connected between passes, and verifies checksums.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitionBytes = 8 << 20 // most bytes of a partition in one answer
	patience       = 30 * time.Second
)

type totals struct {
	records, keyBytes, valueBytes, lastOffset, timestamps int64
}

func main() {
	topic := os.Args[2]
	partitions := parse(os.Args[3])
	records := parse(os.Args[4])
	starts := make(map[int32]kgo.Offset)
	beginning := make(map[int32]kgo.EpochOffset)
	for number := range int32(partitions) {
		starts[number] = kgo.NewOffset().At(0)
		beginning[number] = kgo.EpochOffset{Epoch: -1, Offset: 0}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchMaxPartitionBytes(partitionBytes),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	timestamps := int64(0) // printed at the end, so that the compiler cannot drop the reads
	lines := bufio.NewScanner(os.Stdin)
	for first := true; lines.Scan(); first = false {
		start := time.Now()
		if !first {
			client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: beginning})
		}
		sums := consume(client, records)
		spent := time.Since(start).Nanoseconds()
		fmt.Println(sums.records, sums.keyBytes, sums.valueBytes, sums.lastOffset, spent)
		timestamps += sums.timestamps
	}
	fmt.Fprintln(os.Stderr, timestamps)
}

// consume polls until it has as many records. An error or a long wait ends the program.
func consume(client *kgo.Client, records int64) totals {
	sums := totals{lastOffset: -1}
	for sums.records < records {
		limit, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(limit)
		cancel()
		if err := fetches.Err(); err != nil {
			log.Fatalf("%d of %d records: %v", sums.records, records, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			sums.records++
			sums.keyBytes += int64(len(record.Key))
			sums.valueBytes += int64(len(record.Value))
			sums.lastOffset = max(sums.lastOffset, record.Offset)
			sums.timestamps += record.Timestamp.UnixMilli()
		})
	}
	return sums
}

func parse(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return number
}
