// A receiver as one would write it in Node: an HTTP server that verifies what it
// is sent by the official library, with the secret given in SECRET. It prints its
// port, answers 204 to what verifies and 400 to what does not, and ends when its
// standard input does.
import { createServer } from "node:http";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const webhook = new Webhook(process.env.SECRET);

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    webhook.verify(Buffer.concat(chunks), request.headers, { jsonParse: false });
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    response.writeHead(400).end(error.message);
  }
});

server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume().on("end", () => process.exit(0));
