// Sends the JSON lines of standard input with lumberjack-protocol: version 1, TLS only, data frames. The client says
// its window once, when it has connected, and streams. With `acknowledged` it waits until that number comes back.
//
//     node lumberjack-protocol.js '{"host": ..., "port": ..., "ca": ..., "windowSize": 1000, "acknowledged": 1000}'
const { readFileSync } = require('fs')
const lumberjack = require('lumberjack-protocol')

const { acknowledged, windowSize, ...options } = JSON.parse(process.argv[2])
const events = readFileSync(0, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))

const client = lumberjack.client(options, { windowSize })
client.on('disconnect', (error) => { console.error(error); process.exit(1) })
client.on('connect', () => {
  const socket = client._socket // of lumberjack-protocol, around the one of node
  const end = () => socket._socket.end(() => process.exit())
  socket.on('ack', (sequence) => { if (sequence === acknowledged) end() })
  for (const event of events) client.writeDataFrame(event)
  if (acknowledged === undefined) end()
})
