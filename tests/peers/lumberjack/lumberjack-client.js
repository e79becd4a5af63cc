// Sends the JSON lines of standard input with lumberjack-client, version 2: `first` of them in one window, which waits
// for the connection in the client's own queue; then each in a window of its own. Ends when all windows are acknowledged.
//
//     node lumberjack-client.js '{"host": ..., "port": ..., "ca": ..., "tls": true, "first": 12}'
const { readFileSync } = require('fs')
const LumberjackClient = require('lumberjack-client')

const { first, tls, ...options } = JSON.parse(process.argv[2])
const events = readFileSync(0, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))

let due = 6 * (1 + Math.max(0, events.length - first))
const client = new LumberjackClient(options, tls)
for (const event of events.splice(0, first)) client.log(event)
client.socket.on('error', () => process.exit(1)) // the client itself would try for ever
client.socket.once(tls ? 'secureConnect' : 'connect', () => {
  for (const event of events) client.log(event)
  client.socket.removeAllListeners('close') // else it connects again
  client.socket.once('close', () => process.exit())
  client.socket.on('data', (answer) => { // the client never reads acknowledgements: six bytes for each window
    due -= answer.length
    if (due <= 0) client.socket.end()
  })
})
