// tensorpipe_message ADDRESS: a pipe writes a payload of 1 MiB, another reads it over RDMA; both are compared.
#include <tensorpipe/tensorpipe.h>

#include <future>
#include <iostream>
#include <string>

using namespace tensorpipe;

// Whether a call succeeded; prints why it did not.
static bool succeeded(const char *call, const Error &error) {
  if (error) std::cerr << call << ": " << error.what() << "\n";
  return !error;
}

int main(int, char **argv) {
  auto ibv = transport::ibv::create();
  if (!ibv) {
    std::cerr << "the transport ibv is not viable\n";
    return 1;
  }
  auto context = std::make_shared<Context>();
  context->registerTransport(0, "ibv", ibv);
  context->registerChannel(0, "basic", channel::basic::create());

  auto listener = context->listen({std::string("ibv://") + argv[1]});
  std::promise<std::shared_ptr<Pipe>> accepted;
  listener->accept([&](const Error &error, std::shared_ptr<Pipe> pipe) {
    succeeded("accept", error);
    accepted.set_value(pipe);
  });
  auto writer = context->connect(listener->url("ibv"));

  std::string sent(1 << 20, 0), received(1 << 20, 0);
  for (size_t i = 0; i < sent.size(); i++) sent[i] = char(i * 2654435761u >> 24);
  std::promise<bool> written, read;
  Message message;
  message.payloads.push_back({sent.data(), sent.size()});
  writer->write(message, [&](const Error &error) { written.set_value(succeeded("write", error)); });

  auto reader = accepted.get_future().get();
  reader->readDescriptor([&](const Error &error, Descriptor) {
    if (!succeeded("readDescriptor", error)) return read.set_value(false);
    Allocation allocation;
    allocation.payloads.push_back({received.data()});
    reader->read(allocation, [&](const Error &error) { read.set_value(succeeded("read", error)); });
  });
  bool is_equal = written.get_future().get() & read.get_future().get() && received == sent;
  std::cout << (is_equal ? "equal" : "DIFFERS") << "\n";
  writer->close();
  reader->close();
  listener->close();
  context->join();
  return !is_equal;
}
