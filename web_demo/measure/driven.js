/**
 * @file A page that a program drives: it carries messages between its WebSocket, `socket` two
 * folders up, and one measuring worker. The worker's first message, that it is ready, opens
 * the conversation. Each carries whether the page was out of sight since the last one.
 */

const socketUrl = new URL('../../socket', location.href);
socketUrl.protocol = socketUrl.protocol.replace('http', 'ws');
const socket = new WebSocket(socketUrl);

let { hidden } = document;
document.addEventListener('visibilitychange', () => {
  hidden ||= document.hidden;
});

socket.onopen = () => {
  const worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => {
    socket.send(JSON.stringify({ ...data, hidden }));
    ({ hidden } = document);
  };
  worker.onerror = (event) => {
    const message = event.message || 'the measuring worker could not be started';
    socket.send(JSON.stringify({ type: 'error', message }));
  };
  socket.onmessage = ({ data }) => worker.postMessage(JSON.parse(data));
  socket.onclose = () => worker.terminate(); // nobody listens any more
};
