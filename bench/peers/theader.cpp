// Apache Thrift's C++ library over frames in memory: the begin of every message, and its arguments stepped over.
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include <thrift/TConfiguration.h>
#include <thrift/protocol/THeaderProtocol.h>
#include <thrift/thrift-config.h>
#include <thrift/transport/TBufferTransports.h>

using namespace apache::thrift;

extern "C" const char* version() { return PACKAGE_VERSION; }

// The sum of all sequence ids, name lengths, and lengths of keys and values; -1 where the library throws.
extern "C" int64_t begins(const uint8_t* data, uint32_t size, int64_t count) try {
  auto limits = std::make_shared<TConfiguration>(INT32_MAX);
  auto memory = std::make_shared<transport::TMemoryBuffer>(
      const_cast<uint8_t*>(data), size, transport::TMemoryBuffer::OBSERVE, limits);
  protocol::THeaderProtocol reader(memory);
  std::string name;
  protocol::TMessageType type;
  int32_t sequence;
  int64_t sum = 0;
  while (count--) {
    reader.readMessageBegin(name, type, sequence);
    reader.skip(protocol::T_STRUCT);
    reader.readMessageEnd();
    sum += sequence + name.size();
    for (const auto& pair : reader.getHeaders()) sum += pair.first.size() + pair.second.size();
  }
  return sum;
} catch (const std::exception&) {
  return -1;
}
