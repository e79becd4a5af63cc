// The codec that fbthrift's Go library leaves to its builder: its own zstd.go refuses. It is put in that file's place.
package thrift

import (
	"bytes"

	"github.com/klauspost/compress/zstd"
)

const zstdTransformSupport = true

func zstdRead(source byteReader) (byteReader, error) {
	reader, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return ensureByteReader(reader), nil
}

func zstdWriter(target *bytes.Buffer, source *bytes.Buffer) error {
	writer, err := zstd.NewWriter(target, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if _, err = source.WriteTo(writer); err != nil {
		return err
	}
	return writer.Close()
}
