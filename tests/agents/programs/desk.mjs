// What the Node programs share: desk.py's tools, tasks and lines, in JavaScript. See there.
import { readFileSync } from 'node:fs';

export const SYSTEM = 'You tell customers when their order arrives.';
export const TEMPERATURE = 0.2;
export const MAX_TOKENS = 96;
export const MAX_TURNS = 6;

export const TOOLS = {
  find_order: { argument: 'order_id', description: 'Status and tracking number of an order.' },
  track_parcel: { argument: 'tracking', description: 'The day on which a parcel arrives.' },
};

// As json.dumps writes it: the model has read no other spacing.
const json = (fields) => `{${Object.entries(fields).map(([k, v]) => `"${k}": ${JSON.stringify(v)}`).join(', ')}}`;

function lookUp(orders, name, given) {
  const { argument } = TOOLS[name];
  const order = orders.find((each) => each[argument] === given[argument]);
  if (name === 'find_order') {
    return order ? { status: order.status, tracking: order.tracking } : { error: 'no such order' };
  }
  return order ? { arrives: order.day } : { error: 'no such parcel' };
}

export const schema = (argument) => ({
  type: 'object',
  properties: { [argument]: { type: 'string' } },
  required: [argument],
});

export async function main(answer) {
  const tasks = JSON.parse(readFileSync(process.argv[2], 'utf8'));
  const modes = new Set(process.argv.slice(3));
  await Promise.all(tasks.runs.map((task) => one(task, tasks, modes, answer)));
}

async function one(task, tasks, modes, answer) {
  const calls = [];
  const call = (name, given) => {
    const result = json(lookUp(tasks.orders, name, given));
    calls.push({ name, arguments: given, result });
    return result;
  };
  const line = { order_id: task.order_id, base_url: task.base_url };
  try {
    const run = { ...task, model: tasks.model, api_key: tasks.api_key, modes, call };
    line.answer = await answer(run);
  } catch (error) {
    line.error = String(error.stack ?? error);
  }
  console.log(JSON.stringify({ ...line, calls }));
}
