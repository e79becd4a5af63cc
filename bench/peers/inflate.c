// zlib alone: one state for many streams, which lie apart in one buffer and are written one after another.
#include <stdint.h>
#include <zlib.h>

// The bytes written to `out`, which has room for `room` of them; -1 for a stream that zlib does not read to its end.
int64_t inflate_all(const uint8_t *data, const int64_t *starts, const int64_t *sizes, int64_t count,
                    uint8_t *out, int64_t room) {
    z_stream stream = {0};
    int64_t written = 0;
    if (inflateInit(&stream) != Z_OK) return -1;
    for (int64_t i = 0; i < count && written >= 0; i++) {
        inflateReset(&stream);
        stream.next_in = (Bytef *)data + starts[i];
        stream.avail_in = (uInt)sizes[i];
        stream.next_out = out + written;
        stream.avail_out = (uInt)(room - written);
        written = inflate(&stream, Z_FINISH) == Z_STREAM_END ? stream.next_out - out : -1;
    }
    inflateEnd(&stream);
    return written;
}
