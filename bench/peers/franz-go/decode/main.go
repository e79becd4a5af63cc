// Reads the record batches of a segment with franz-go's types.
//
//	decode FILE
//
// For every line on standard input it makes one pass over FILE, in memory. The line "check" also verifies checksums.
// It prints the number of records, the bytes of keys and of values, the largest offset, and the nanoseconds of the
// pass.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	lengthAt  = 8  // position of the batch length, which counts the bytes after it
	afterSize = 12 // position of the first byte after the batch length
	coveredAt = 21 // position of the first byte that the checksum covers
	codecMask = 7  // of the attributes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type totals struct {
	records, keyBytes, valueBytes, lastOffset, timestamps int64
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	decompressor := kgo.DefaultDecompressor()
	timestamps := int64(0) // printed at the end, so that the compiler cannot drop the reads
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		start := time.Now()
		sums, err := readAll(data, decompressor, lines.Text() == "check")
		if err != nil {
			log.Fatal(err)
		}
		spent := time.Since(start).Nanoseconds()
		fmt.Println(sums.records, sums.keyBytes, sums.valueBytes, sums.lastOffset, spent)
		timestamps += sums.timestamps
	}
	fmt.Fprintln(os.Stderr, timestamps)
}

// readAll reads every record of all batches.
func readAll(data []byte, decompressor kgo.Decompressor, check bool) (totals, error) {
	sums := totals{lastOffset: -1}
	var batch kmsg.RecordBatch
	for len(data) > 0 {
		if len(data) < afterSize {
			return sums, errors.New("the last batch is not whole")
		}
		size := afterSize + int(binary.BigEndian.Uint32(data[lengthAt:]))
		if size < coveredAt || size > len(data) {
			return sums, errors.New("the last batch is not whole")
		}
		if err := batch.ReadFrom(data[:size]); err != nil {
			return sums, err
		}
		if check && crc32.Checksum(data[coveredAt:size], castagnoli) != uint32(batch.CRC) {
			return sums, errors.New("a batch with a bad checksum")
		}
		if err := readBatch(&batch, decompressor, &sums); err != nil {
			return sums, err
		}
		data = data[size:]
	}
	return sums, nil
}

// readBatch adds the records of a batch to the sums.
func readBatch(batch *kmsg.RecordBatch, decompressor kgo.Decompressor, sums *totals) error {
	codec := kgo.CompressionCodecType(batch.Attributes & codecMask)
	records, err := decompressor.Decompress(batch.Records, codec)
	if err != nil {
		return err
	}
	var record kmsg.Record
	for range batch.NumRecords {
		length, used := kbin.Varint(records)
		size := used + int(length)
		if used <= 0 || length < 0 || size > len(records) {
			return errors.New("a record is not whole")
		}
		if err := record.ReadFrom(records[:size]); err != nil {
			return err
		}
		records = records[size:]
		sums.records++
		sums.keyBytes += int64(len(record.Key))
		sums.valueBytes += int64(len(record.Value))
		sums.lastOffset = max(sums.lastOffset, batch.FirstOffset+int64(record.OffsetDelta))
		sums.timestamps += batch.FirstTimestamp + record.TimestampDelta64
	}
	return nil
}
