/**
 * @file A page that a program drives: it carries messages between its WebSocket, `socket` two
 * folders up, and one measuring worker. The worker's first message, that it is ready, opens
 * the conversation.
 */

const socketUrl = new URL('../../socket', location.href);
socketUrl.protocol = socketUrl.protocol.replace('http', 'ws');
const socket = new WebSocket(socketUrl);

socket.onopen = () => {
  const worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => socket.send(JSON.stringify(data));
  worker.onerror = (event) => {
    const message = event.message || 'the measuring worker could not be started';
    socket.send(JSON.stringify({ type: 'error', message }));
  };
  socket.onmessage = ({ data }) => worker.postMessage(JSON.parse(data));
  socket.onclose = () => worker.terminate(); // nobody listens any more
};
